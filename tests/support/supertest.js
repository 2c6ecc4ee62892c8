// loaded once for a worker and not again for each test file, whose context would evaluate its 50 modules
export default requireCompiled('supertest');
